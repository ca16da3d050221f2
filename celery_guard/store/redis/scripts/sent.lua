-- uses: store row
-- Mark rows as published; how many still carried the token.

-- What is published again and again is looked at ever later, up to 2 to this power.
local DOUBLINGS = 10
-- How long a carried message is kept once it was published: an hour, for people who look.
local KEEP_CARRIED = 3600 * 1000000

local marked = 0
for _, id in ipairs(given.ids) do
    local row = read(id)
    if row and row.relay == given.token then
        local times = count(row.publications)
        local later = NOW + given.suspect_after * 2 ^ math.min(times, DOUBLINGS)
        local to
        if row.state == 'pending' and row.kind == 'carried' then
            to = {
                state = 'succeeded', told = 1, sent = NOW, finished = NOW, keep_until = NOW + KEEP_CARRIED,
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
