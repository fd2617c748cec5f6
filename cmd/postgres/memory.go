package postgres

import (
	"bytes"
	"os"
	"strconv"
)

// sharedBuffers is how many megabytes of a machine's memory the server keeps pages in: an eighth, from 128 to 2048. A
// registration touches a few index pages at random; where they do not fit, each is read and written again.
func sharedBuffers(memory int64) int64 {
	return min(max(memory>>20/8, 128), 2048)
}

// memoryLimit is the memory that processes may use together, in bytes: the
// machine's, or the container's (cgroup v2) where that is less. 0 where it cannot be told.
func memoryLimit() int64 {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	total := memTotal(meminfo)
	if limit, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(limit)), 10, 64); err == nil { // else "max"
			total = min(total, n)
		}
	}
	return total
}

func memTotal(meminfo []byte) int64 {
	for line := range bytes.Lines(meminfo) {
		fields := bytes.Fields(line)
		if len(fields) == 3 && string(fields[0]) == "MemTotal:" && string(fields[2]) == "kB" {
			n, _ := strconv.ParseInt(string(fields[1]), 10, 64) // 0 for what is no number
			return n << 10
		}
	}
	return 0
}
