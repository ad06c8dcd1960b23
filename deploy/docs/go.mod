module skandha.dev/docs

go 1.26.8
