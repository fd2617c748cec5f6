// Package analyzer runs domain/analysis over a file in a child process: the same program, started anew with a hidden
// subcommand. The parsers read hostile bytes with much code that is not ours; whatever they do, the service only loses
// that child.
//
// What holds the child, and who sees to it:
//
//   - The file comes as an open descriptor, opened anew for reading only: no path, no right to write.
//   - The parent sets the child's resource limits with prlimit(2) before it hands over the request, so no byte of the
//     file is read without them: RLIMIT_DATA (memory: what the process maps to write on), RLIMIT_STACK, RLIMIT_CPU,
//     RLIMIT_FSIZE 0 (no file grows), RLIMIT_CORE 0 (no dump holds the file), RLIMIT_NOFILE, RLIMIT_MEMLOCK 0. The Go
//     runtime has a softer memory limit below that. RLIMIT_AS only bounds the page tables, for Go reserves address
//     space that it never touches.
//   - The child puts itself behind a seccomp filter before it touches the file, and checks that the filter holds: only
//     the system calls that a computing Go program needs are let through, with the arguments that it needs (filter.go).
//     There is no socket, no open, no exec, no new process or thread (the runtime's are started before), no signal to
//     others, neither by a call nor by a descriptor that they share, and no memory but private one, which RLIMIT_DATA
//     counts. It needs no privileges, and works alike for root and others, in containers too. Where
//     the kernel refuses the filter nothing is analysed, and every detector is inconclusive with that reason.
//   - The parent kills the child's process group at the wall-clock limit, when the caller goes away, and at Close; the
//     kernel kills the child when the parent dies.
//   - The environment is empty but for settings of the Go runtime; standard error is read only to tell why the child ended.
//   - The answer is bounded, parsed strictly and held against the detectors before it is believed.
//
// Organizations take turns at the children, and each has its share of the queue (queue.go).
//
// In programs built with the race detector RLIMIT_DATA and RLIMIT_AS are not set: its shadow memory is larger than any
// limit.
//
// It is written for Linux; on architectures other than amd64 and arm64 there is no filter, and nothing is analysed.
package analyzer
