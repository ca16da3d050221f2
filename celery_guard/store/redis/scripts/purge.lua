-- uses: store tally row
-- Delete dead and resolved letters with all that belongs to them: (answer, state) of each.
local function delete(id)
    local row = read(id)
    if not row then
        -- an earlier try of this very call may have deleted it
        return { given.again and 'done' or 'missing' }
    end
    if row.state ~= 'dead' and row.state ~= 'resolved' then
        return { 'not dead', row.state }
    end
    if row.told ~= '1' then
        return { 'untold' }
    end
    if row.state == 'dead' and count(row.replays) == 0 and given.unreplayed == 0 then
        return { 'unreplayed' }
    end
    forget(id, row)
    return { 'done' }
end

local answers = {}
for place, id in ipairs(given.ids) do
    answers[place] = delete(id)
end
return answers
