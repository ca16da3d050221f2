-- uses: store tally row
-- Look at suspects again later; how many still were some.
local deferred = 0
for _, id in ipairs(given.ids) do
    local row = read(id)
    if row and row.state == 'sent' and tonumber(row.due) <= NOW then
        write(id, row, { due = NOW + given.delay })
        deferred = deferred + 1
    end
end
return deferred
