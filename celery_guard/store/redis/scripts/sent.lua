-- uses: store tally row
-- Mark rows as published; how many still carried the token.

local marked = 0
for _, id in ipairs(given.ids) do
    local row = read(id)
    if row and row.relay == given.token then
        local times = count(row.publications)
        local later = NOW + given.suspect_after * 2 ^ math.min(times, given.doublings)
        local to
        if row.state == 'pending' and row.kind == 'carried' then
            to = {
                state = 'succeeded', told = 1, sent = NOW, finished = NOW, keep_until = NOW + given.keep_carried,
                due = false, relay = false,
            }
        elseif row.state == 'pending' then
            to = { state = 'sent', due = later, publications = times + 1, sent = NOW, relay = false }
        elseif ENDED[row.state] then
            -- the token stays, for the one claim that will tell
            to = { due = later, publications = times + 1, sent = NOW }
        end
        if to then
            write(id, row, to)
            marked = marked + 1
        end
    end
end
return marked
