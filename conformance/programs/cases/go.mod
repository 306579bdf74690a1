module minibroker/conformance/cases

go 1.26.0
