-- uses: store tally row accept move
-- Write an attempt's end, its result or failure, and what follows it.
local moved = move_row(given.id, given.move)
ring()
return moved
