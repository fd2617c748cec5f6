package integritytest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ServeS3 runs versitygw, with versions and object lock for the buckets that are created with it. Buckets are the
// directories in dir/data. It accepts the access key KEY with the secret SECRET. The options are passed to the program,
// which only make drill installs: a short test fails, also where the program happens to be.
func ServeS3(t testing.TB, dir string, options ...string) (address string) {
	t.Helper()
	if testing.Short() {
		t.Fatal("a test with an S3 server is a long story, and asks testing.Short() itself")
	}
	for _, name := range []string{"meta", "versions", "data"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	address = FreeAddress(t)
	log, err := os.Create(filepath.Join(dir, "s3.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	gateway := exec.Command("versitygw", append(append(
		[]string{"--access", "KEY", "--secret", "SECRET", "--port", address, "--region", "eu-west-1"}, options...),
		"posix", "--sidecar", filepath.Join(dir, "meta"), "--versioning-dir", filepath.Join(dir, "versions"),
		filepath.Join(dir, "data"))...)
	gateway.Stdout, gateway.Stderr = log, log
	if err := gateway.Start(); err != nil {
		t.Fatalf("make drill installs it: %v", err)
	}
	t.Cleanup(func() {
		_ = gateway.Process.Kill()
		_ = gateway.Wait()
	})
	Eventually(t, "the S3 server listens", func() error {
		c, err := net.Dial("tcp", address)
		if err != nil {
			text, _ := os.ReadFile(log.Name())
			return errors.Join(err, fmt.Errorf("%s", strings.TrimSpace(string(text))))
		}
		return c.Close()
	})
	return address
}
