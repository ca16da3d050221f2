-- uses: store tally row again
-- Send dead jobs again, each if its key is free or it only followed the job that holds it: (answer, holder, state) of each.
local answers = {}
for place, id in ipairs(given.ids) do
    answers[place] = replay(id)
end
ring()
return answers
