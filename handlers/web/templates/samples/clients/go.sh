go mod init example.org/origin
go mod edit -require integrityledger@v0.0.0 -replace integrityledger=YOUR_CHECKOUT
go get integrityledger/handlers/client/outbox
