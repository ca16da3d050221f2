-- uses: store
-- Now, by the server's clock.
return integer(NOW)
