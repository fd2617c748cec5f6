go run first.go
