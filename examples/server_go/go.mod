module inlay.dev/go/server

go 1.19

require inlay.dev/go/inlay v0.0.0

replace inlay.dev/go/inlay => ../../bindings/go
