-- uses: store row
-- Keep a failure that moves nothing, of a job that exists.
local row = read(given.id)
if row then
    keep_failure(given.id, given.failure, 0)
end
return 1
