-- uses: store tally row again
-- Send a dead job again with another message: (answer, holder, state or generation, state).
local answer = replay(given.id, given.edit)
ring()
return answer
