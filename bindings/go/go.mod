module inlay.dev/go/inlay

go 1.19
