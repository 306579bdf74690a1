module minibroker

go 1.26.0
