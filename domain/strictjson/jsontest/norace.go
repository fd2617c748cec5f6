//go:build !race

package jsontest

const most = 1 << 30
