package postgres

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// arguments are the server's settings, on its command line so that they win over postgresql.conf.
func arguments(l layout, cfg Config) []string {
	settings := map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": `"` + strings.ReplaceAll(l.socket, `"`, `""`) + `"`,
		"unix_socket_permissions": "0700",
		"cluster_name":            "integrity",
		"timezone":                "UTC",
		"log_timezone":            "UTC",

		// An acknowledged commit survives the loss of power.
		"fsync":              "on",
		"synchronous_commit": "on",
		"full_page_writes":   "on",

		// Settable only at a start; what becomes of the segments is settled while the server runs (archive.go).
		"wal_level":    "replica",
		"archive_mode": "on",

		// Few full-page writes on a slow disk. Compressing them (pglz is all that every server has) costs more than they do.
		"max_connections":            "100",
		"shared_buffers":             strconv.FormatInt(sharedBuffers(memoryLimit()), 10) + "MB",
		"max_wal_size":               "2GB",
		"checkpoint_timeout":         "15min",
		"jit":                        "off",
		"tcp_keepalives_idle":        "60",
		"dynamic_shared_memory_type": sharedMemory(),

		// No statement, no parameter and no key of a row gets into the log: errors go to the client alone (messages of
		// level ERROR quote values, and DETAIL quotes rows).
		"logging_collector":                 "off",
		"log_destination":                   "stderr",
		"log_line_prefix":                   "%m [%p] ",
		"log_min_messages":                  "log",
		"log_min_error_statement":           "panic",
		"log_error_verbosity":               "terse",
		"log_statement":                     "none",
		"log_min_duration_statement":        "-1",
		"log_parameter_max_length":          "0",
		"log_parameter_max_length_on_error": "0",
		"log_checkpoints":                   "off",
		"lc_messages":                       "C",
	}
	if cfg.Disposable {
		maps.Copy(settings, map[string]string{"shared_buffers": "128MB", "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "archive_mode": "off"})
	}
	maps.Copy(settings, cfg.Settings)
	args := []string{"-D", l.data}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// sharedMemory avoids a /dev/shm that is missing or as small as a container's default of 64 MB.
func sharedMemory() string {
	var stat syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &stat); err != nil || stat.Blocks*uint64(stat.Bsize) < 256<<20 {
		return "mmap"
	}
	return "posix"
}

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
