package postgres

import (
	"bytes"
	_ "embed"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

//go:embed server.conf
var serverConf string

// arguments returns the server's settings as command line arguments, which override postgresql.conf.
func arguments(l layout, cfg Config) []string {
	settings := map[string]string{
		"port":                       port,
		"unix_socket_directories":    quoted(l.socket),
		"shared_buffers":             strconv.FormatInt(sharedBuffers(memoryLimit()), 10) + "MB",
		"dynamic_shared_memory_type": sharedMemory(),
	}
	for line := range strings.Lines(serverConf) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && name[0] != '#' {
			settings[name] = strings.Trim(value, "'")
		}
	}
	if cfg.Disposable {
		maps.Copy(
			settings,
			map[string]string{
				"shared_buffers": "128MB", "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off",
				"archive_mode": "off",
			},
		)
	}
	maps.Copy(settings, cfg.Settings)
	args := []string{"-D", l.data}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// sharedMemory avoids /dev/shm if it is missing or small, such as a container's default of 64 MB.
func sharedMemory() string {
	var stat syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &stat); err != nil || stat.Blocks*uint64(stat.Bsize) < 256<<20 {
		return "mmap"
	}
	return "posix"
}

// sharedBuffers returns the size of the page cache in megabytes: an eighth of the memory, from 128 to 2048. A
// registration touches a few random index pages; if they do not fit, each must be read and written again.
func sharedBuffers(memory int64) int64 {
	return min(max(memory>>20/8, 128), 2048)
}

// memoryLimit returns the memory that all processes may use, in bytes: the machine's, or the container's (cgroup v2) if
// that is less. It returns 0 if the limit is unknown.
func memoryLimit() int64 {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	total := memTotal(meminfo)
	if limit, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(limit)), 10, 64); err == nil { // otherwise "max"
			total = min(total, n)
		}
	}
	return total
}

func memTotal(meminfo []byte) int64 {
	for line := range bytes.Lines(meminfo) {
		fields := bytes.Fields(line)
		if len(fields) == 3 && string(fields[0]) == "MemTotal:" && string(fields[2]) == "kB" {
			n, _ := strconv.ParseInt(string(fields[1]), 10, 64) // 0 if it is not a number
			return n << 10
		}
	}
	return 0
}
