-- uses: store
-- Whether the store is of this version: said by what every script begins with.
return 1
