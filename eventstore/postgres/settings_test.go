package postgres

import "testing"

func TestSharedBuffers(t *testing.T) {
	const gigabyte = 1 << 30
	for memory, want := range map[int64]int64{
		0: 128, gigabyte / 2: 128, 2 * gigabyte: 256, 8 * gigabyte: 1024, 24 * gigabyte: 2048,
	} {
		if got := sharedBuffers(memory); got != want {
			t.Errorf("%d bytes: %d MB, want %d", memory, got, want)
		}
	}
	if got := memTotal([]byte("MemFree: 1 kB\nMemTotal:       24684204 kB\n")); got != 24684204<<10 {
		t.Errorf("MemTotal %d", got)
	}
	if memoryLimit() <= 0 {
		t.Error("this machine's memory cannot be told")
	}
}
