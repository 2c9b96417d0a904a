# SPDX-License-Identifier: GPL-2.0-only
# Print results of the stick as a table: awk -f table.awk figures FILE.json
# A row of figures: words; program; case; figure; what it is divided by.  In
# the JSON each case has one line, and what the stick wrote begins in column 1.
BEGIN { FS = "; " }
FNR == NR { row[rows = NR] = $0; next }
/^"(base|series|again)":$/ { side = substr($0, 2, length($0) - 3); there[side] }
/^"machine": / { machine = substr($0, 13, length($0) - 14) }
/^"tsc": "[^"]/ { more = " The TSC is unstable: compare no cycles." }
/^"splat": "[^"]/ { failed = failed " " side "/kernel" }
/^"[^"]*": "fail",?$/ { failed = failed " " side "/" substr($0, 2, index($0, "\":") - 2) }
/^"[a-z_.]*\.[0-9]":$/ { program = substr($0, 2, length($0) - 5) }
/"name": / {
	for (i = 1; i <= rows; i++) {
		split(row[i], part)
		if (part[2] != program || !index($0, "\"name\": \"" part[3] "\"") ||
		    !match($0, "\"" part[4] "\": [0-9.e+-]+"))
			continue
		value = substr($0, RSTART + length(part[4]) + 4, RLENGTH) / part[5]
		n = ++runs[side, i]
		# In order.
		for (; n > 1 && value < run[side, i, n - 1]; n--)
			run[side, i, n] = run[side, i, n - 1]
		run[side, i, n] = value
	}
}
function median(side, i) {
	return run[side, i, int((runs[side, i] + 1) / 2)]
}
function show(value) {
	return value == "" ? "-" : sprintf(value < 100 ? "%.2f" : "%.0f", value)
}
END {
	print substr(machine, 1, 120) "\n"
	format = "| %-20s | %6s | %6s | %6s | %5s | %8s |\n"
	printf format, "", "base", "series", "again", "ratio", "spread,%"
	print "|----------------------|-------:|-------:|-------:|------:|---------:|"
	for (i = 1; i <= rows; i++) {
		spread = 0
		for (side in there) {
			wide = run[side, i, runs[side, i]] - run[side, i, 1]
			if (wide > spread * median(side, i))
				spread = wide / median(side, i)
		}
		base = median("base", i)
		series = median("series", i)
		printf format, substr(row[i], 1, index(row[i], ";") - 1), show(base), show(series),
			show(median("again", i)), base && series != "" ? show(series / base) : "-",
			sprintf("%.0f", 100 * spread)
	}
	n = split("base series again", part, " ")
	for (i = 1; i <= n; i++)
		if (!(part[i] in there))
			more = more " Missing: " part[i] "."
	print "\n" (failed ? "Failed:" failed "." : "No test failed.") more
}
