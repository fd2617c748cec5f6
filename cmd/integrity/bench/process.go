package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPU is processor time, user and system, by who spent it. Load is the load
// generator; in process it is the service too, and stands there.
type CPU struct {
	Service    time.Duration `json:"serviceNanoseconds"`
	PostgreSQL time.Duration `json:"postgresqlNanoseconds"`
	Load       time.Duration `json:"loadNanoseconds"`
}

func (c CPU) less(before CPU) CPU {
	return CPU{c.Service - before.Service, c.PostgreSQL - before.PostgreSQL, c.Load - before.Load}
}

func (c CPU) per(units int64) CPU {
	n := time.Duration(max(1, units))
	return CPU{c.Service / n, c.PostgreSQL / n, c.Load / n}
}

// tick is the unit of /proc/<pid>/stat: the kernel shows a hundredth of a second on every platform that Go runs on.
const tick = 10 * time.Millisecond

// processStat are the fields of proc(5) stat that we need.
type processStat struct {
	parent      int
	own, waited time.Duration // of the process; of its children that were waited for
}

func readStat(pid int) (processStat, error) {
	var s processStat
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, err
	}
	// The second field is the program's name in parentheses, and may hold both.
	_, rest, found := strings.Cut(string(text[max(0, bytes.LastIndexByte(text, ')')):]), ") ")
	fields := strings.Fields(rest) // from the third on
	if !found || len(fields) < 15 {
		return s, fmt.Errorf("/proc/%d/stat: unexpected form", pid)
	}
	var ticks [4]int64 // utime, stime, cutime, cstime
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return s, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	s.own, s.waited = time.Duration(ticks[0]+ticks[1])*tick, time.Duration(ticks[2]+ticks[3])*tick
	s.parent, err = strconv.Atoi(fields[1])
	return s, err
}

// treeCPU is what a process and its children have spent, those that have ended
// included. PostgreSQL's backends are all children of the postmaster.
func treeCPU(root int) (time.Duration, error) {
	s, err := readStat(root)
	if err != nil {
		return 0, err
	}
	total := s.own + s.waited
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		child, err := readStat(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH):
			continue // it has ended meanwhile
		case err != nil:
			return 0, err
		}
		if child.parent == root {
			total += child.own + child.waited
		}
	}
	return total, nil
}

// ownCPU is of this process, or of its children that were waited for.
func ownCPU(who int) (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// residentPeak is the most memory that a process has had resident, in bytes (VmHWM).
func residentPeak(pid int) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status: no VmHWM", pid)
}
