-- uses: store tally row
-- Give taken rows back, each due after its delay; how many still carried the token.
local back = 0
for _, one in ipairs(given.rows) do
    local row = read(one[1])
    if row and row.relay == given.token and (row.state == 'pending' or ENDED[row.state]) then
        write(one[1], row, { relay = false, due = NOW + one[2], refusals = count(row.refusals) + given.refused })
        back = back + 1
    end
end
return back
