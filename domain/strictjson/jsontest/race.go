//go:build race

package jsontest

// most bounds the shapes: with the race detector, which makes each step ten times dearer, larger ones show nothing more.
const most = 64 << 10
