package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/eventstore/pgtest/network"
)

func theServices(*world) (names []string) {
	for i := range services {
		names = append(names, serviceName(i))
	}
	return names
}

func thePair(*world) []string    { return []string{serverOne, serverTwo} }
func theServers(*world) []string { return []string{serverOne, serverTwo, serverLate} }

func theHelpers(w *world) (names []string) {
	for name := range w.processes {
		if !strings.HasPrefix(name, "service") && name != "monitor" {
			names = append(names, name)
		}
	}
	return names
}

func theLinks(w *world) []string { return slices.Collect(maps.Keys(w.links)) }

// toThePrimary returns the ways that a COMMIT takes to the server that is primary when the fault begins.
func toThePrimary(*world) []string {
	return []string{serviceName(0) + " → the primary", serviceName(1) + " → the primary", "pooler → the primary"}
}

// link returns the link that a way currently uses.
func (w *world) link(way string) (name string) {
	primary := w.primary.Load().name
	if strings.HasPrefix(way, "pooler") {
		return "pooler of " + primary + " → " + primary
	}
	return strings.TrimSuffix(way, "the primary") + primary
}

func one(name string) func(*world) []string { return func(*world) []string { return []string{name} } }

const aClock = "a clock" // two clocks that are wrong by the same amount agree with each other

// allKinds are all kinds of faults. Their weights set how often each is drawn.
func allKinds() []kind {
	pairNeeds := func(*world, string) []string { return []string{serverOne, serverTwo} }
	clockNeeds := func(_ *world, on string) []string { return []string{on, aClock} }
	return []kind{
		{name: "kill", weight: 10, targets: theServices, through: throughService, begin: killProcess},
		{name: "freeze", weight: 8, targets: theServices, through: throughService, begin: freezeProcess},
		{name: "clock", weight: 7, targets: theServices, needs: clockNeeds, through: throughService, begin: moveServiceClock},
		{name: "kill", weight: 7, targets: theServers, begin: killServer},
		{name: "freeze", weight: 7, targets: theServers, begin: freezeServer},
		{name: "restart", weight: 4, targets: theServers, begin: restartServer},
		{name: "failover", weight: 5, targets: one("the primary"), needs: pairNeeds, begin: failOver},
		{name: "disk-full", library: true, weight: 5, targets: theServers, begin: fillDisk},
		{name: "fsync", library: true, weight: 4, targets: theServers, begin: failSync},
		{name: "clock", library: true, weight: 4, targets: thePair, needs: clockNeeds, begin: moveServerClock},
		{name: "kill", weight: 7, targets: theHelpers, begin: killProcess},
		{name: "freeze", weight: 6, targets: theHelpers, begin: freezeProcess},
		{name: "cut", weight: 8, targets: theLinks, through: throughService, begin: cutLink},
		{name: "away", weight: 6, targets: theLinks, through: throughService,
			begin: weatherOf(func(plan) (up, down network.Weather) {
				return network.Weather{Away: true}, network.Weather{Away: true}
			})},
		{name: "half-open", weight: 5, targets: theLinks, through: throughService, begin: strandLink},
		{name: "hole", weight: 6, targets: theLinks, through: throughService,
			begin: weatherOf(func(plan) (up, down network.Weather) {
				return network.Weather{Hole: true}, network.Weather{Hole: true}
			})},
		{name: "one-way", weight: 7, targets: theLinks, through: throughService,
			begin: weatherOf(func(p plan) (up, down network.Weather) {
				return network.Weather{Hole: p.draw%2 == 0}, network.Weather{Hole: p.draw%2 != 0}
			})},
		{name: "delay", weight: 7, targets: theLinks, through: throughService,
			begin: weatherOf(func(p plan) (up, down network.Weather) {
				late := network.Weather{Latency: time.Duration(5+p.draw%300) * time.Millisecond}
				return late, late
			})},
		{name: "drip", weight: 6, targets: theLinks, through: throughService,
			begin: weatherOf(func(p plan) (up, down network.Weather) {
				slow := network.Weather{Latency: time.Duration(1+p.draw%5) * time.Millisecond, Piece: 64 + int(p.draw%1000)}
				return slow, slow
			})},
		{name: "commit-cut", weight: 14, targets: toThePrimary, through: throughService, begin: cutCommits},
		{name: "rolling-restart", weight: 2, targets: one("services"), begin: rollServices, command: true,
			needs: func(*world, string) []string {
				return []string{"rolling restart", serviceName(0), serviceName(1), serviceName(2)}
			}},
		{
			name: "rebuild", weight: 3, targets: one("the ledger"), begin: commandOf("rebuild", "--check"), command: true,
			needs: alone("rebuild"),
		},
		{
			name: "audit", weight: 2, targets: one("the ledger"), begin: commandOf("audit"), command: true,
			needs: alone("audit"),
		},
		{name: "backup", weight: 2, targets: one("the ledger"), begin: backUp, command: true, needs: alone("backup")},
	}
}

func alone(name string) func(*world, string) []string {
	return func(*world, string) []string { return []string{"command " + name} }
}

func killProcess(w *world, p plan) (func(), string) {
	process := w.processes[p.on]
	process.kill()
	return process.start, ""
}

func freezeProcess(w *world, p plan) (func(), string) {
	process := w.processes[p.on]
	process.signal(syscall.SIGSTOP)
	return func() { process.signal(syscall.SIGCONT) }, ""
}

func killServer(w *world, p plan) (func(), string) {
	s := w.servers[p.on]
	detail := w.roleOf(s)
	s.kill()
	return s.revive, detail
}

func freezeServer(w *world, p plan) (func(), string) {
	s := w.servers[p.on]
	for range 3 { // a process that is just being forked may be missed
		s.signal(syscall.SIGSTOP)
	}
	return func() { s.signal(syscall.SIGCONT) }, w.roleOf(s)
}

func restartServer(w *world, p plan) (func(), string) {
	s := w.servers[p.on]
	detail := w.roleOf(s)
	s.stop()
	return s.revive, detail
}

func (w *world) roleOf(s *server) string {
	switch {
	case s.name == serverLate:
		return "the late replica"
	case s == w.primary.Load():
		return "the primary"
	default:
		return "the synchronous standby"
	}
}

func failOver(w *world, p plan) (func(), string) {
	detail, err := w.failOver(min(p.lasts, 3*time.Second))
	if err == nil {
		err = w.followed()
	}
	if err != nil {
		w.violation("the failover was not finished: %v", err)
	}
	return nil, detail
}

// fillDisk may make the server stop by itself; its supervisor restarts it.
func fillDisk(w *world, p plan) (func(), string) {
	s := w.servers[p.on]
	s.control(0, false, true)
	return func() { s.control(0, false, false) }, w.roleOf(s)
}

func failSync(w *world, p plan) (func(), string) {
	s := w.servers[p.on]
	s.control(0, true, false)
	return func() { s.control(0, false, false) }, w.roleOf(s)
}

// maxSkew is the largest error of a clock, in seconds.
const maxSkew = 300

// skewOf returns the error in seconds. Sometimes it is so small that the service tolerates it.
func skewOf(p plan) int {
	seconds := 20 + int(p.draw/2%(maxSkew-20))
	if p.draw/8%3 == 0 {
		seconds = 1 + int(p.draw/2%8)
	}
	if p.draw%2 == 0 {
		seconds = -seconds
	}
	return seconds
}

func moveServerClock(w *world, p plan) (func(), string) {
	s := w.servers[p.on]
	s.control(time.Duration(skewOf(p))*time.Second, false, false)
	return func() { s.control(0, false, false) }, fmt.Sprintf("%+d s, %s", skewOf(p), w.roleOf(s))
}

func moveServiceClock(w *world, p plan) (func(), string) {
	i := slices.Index(theServices(w), p.on)
	w.setClock(i, skewOf(p))
	return func() { w.setClock(i, 0) }, fmt.Sprintf("%+d s", skewOf(p))
}

// healed cleans up a link after its fault: PgBouncer 1.18 may keep a client waiting forever after its own link was cut,
// so it is restarted, as its operator would do.
func (w *world) healed(link string) (detail string) {
	name, _, _ := strings.Cut(link, " → ")
	if p := w.processes[name]; p != nil && strings.HasPrefix(name, "pooler") {
		p.kill()
		p.start()
		return "; the pooler was restarted"
	}
	return ""
}

func weatherOf(of func(plan) (up, down network.Weather)) func(*world, plan) (func(), string) {
	return func(w *world, p plan) (func(), string) {
		link := w.links[p.on]
		up, down := of(p)
		link.SetEach(up, down)
		if up.Away || down.Away {
			link.Cut()
		}
		detail := fmt.Sprintf("up %+v, down %+v", up, down)
		return func() {
			link.Set(network.Weather{})
			w.healed(p.on)
		}, detail
	}
}

func cutLink(w *world, p plan) (func(), string) {
	w.links[p.on].Cut()
	return func() { w.healed(p.on) }, ""
}

func strandLink(w *world, p plan) (func(), string) {
	w.links[p.on].Strand()
	return func() { w.healed(p.on) }, "what was open stays so, and nothing passes"
}

// cutCommits cuts the connections of several commits, each before or after the server has received it.
func cutCommits(w *world, p plan) (func(), string) {
	name := w.link(p.on)
	link := w.links[name]
	how, detail := network.CutAfterCommit, "after the server had it"
	if p.draw%3 == 0 {
		how, detail = network.CutBeforeCommit, "before the server had it"
	}
	stop, hit := make(chan struct{}), make(chan struct{}, 1)
	done := make(chan int)
	link.AtCommit(how, func() { hit <- struct{}{} })
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				done <- n
				return
			case <-hit:
				n++
				select {
				case <-stop:
					done <- n
					return
				case <-time.After(400 * time.Millisecond):
				}
				link.AtCommit(how, func() { hit <- struct{}{} })
			}
		}
	}()
	return func() {
		link.AtCommit(network.CommitsPass, nil)
		close(stop)
		w.note("%d commits on %s were cut %s", <-done, name, detail)
		w.healed(name)
	}, name + ": " + detail
}

// rollServices goes to the previous version, one process after the other, and back.
func rollServices(w *world, _ plan) (func(), string) {
	if w.former == "" {
		return nil, "there is no program of the version before"
	}
	began := time.Now()
	for _, program := range []string{w.former, w.program} {
		for i := range services {
			p := w.processes[serviceName(i)]
			p.stop()
			p.program = program
			p.start()
			if err := within(90*time.Second, func() error {
				if !w.front.ready[i].Load() {
					return errors.New("it is not ready")
				}
				return nil
			}); err != nil {
				w.note("rolling restart: %s, of %s: %v", p.name, filepath.Base(program), err)
			}
		}
	}
	return nil, fmt.Sprintf("to the version before and back in %s", time.Since(began).Round(time.Second))
}

// commandOf runs a command that proves something, during the faults. Failing to run is no violation; a negative answer
// is.
func commandOf(args ...string) func(*world, plan) (func(), string) {
	return func(w *world, _ plan) (func(), string) {
		r := w.run(3*time.Minute, w.ledgerEnv(), args...)
		said := lastLine(r.out + r.errs)
		if r.code == cli.ExitNegative {
			w.violation("integrity %v says: %s%s", args, r.out, r.errs)
		}
		return nil, fmt.Sprintf("exit code %d: %s", r.code, said)
	}
}

// backUp copies the primary and verifies the copy. (integrity backup works only with the embedded server.)
func backUp(w *world, _ plan) (func(), string) {
	to := filepath.Join(w.data, "backup")
	defer os.RemoveAll(to)
	if out, err := w.baseBackup(w.primary.Load(), to); err != nil {
		return nil, fmt.Sprintf("it could not be done: %v: %s", err, lastLine(out))
	}
	out, err := w.verifyBackup(to)
	if err != nil {
		w.violation("the backup does not verify: %v: %s", err, out)
	}
	return nil, "it verifies"
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := lines[len(lines)-1]
	return line[:min(len(line), 300)]
}
