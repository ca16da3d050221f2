-- uses: store record
-- Append rows to the audit, in their order.
for _, row in ipairs(given.rows) do
    record(row)
end
