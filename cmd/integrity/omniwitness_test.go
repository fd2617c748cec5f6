package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// omniwitness is the newest version of transparency-dev's witness that builds with this Go.
const omniwitness = "github.com/transparency-dev/witness"
const omniwitnessVersion = "v0.0.0-20260720115447-2e1c6971d19e"

// feeder takes a log's checkpoint to a witness with third-party clients: tessera's client reads the log,
// transparency-dev's calls the witness. It prints the cosignatures.
const feeder = `package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/transparency-dev/tessera/client"
	asking "github.com/transparency-dev/witness/client/http"
	"github.com/transparency-dev/witness/witness"
)

func main() {
	ctx := context.Background()
	logURL, err := url.Parse(os.Args[1])
	check(err)
	witnessURL, err := url.Parse(os.Args[2])
	check(err)
	fetcher, err := client.NewHTTPFetcher(logURL, http.DefaultClient)
	check(err)
	checkpoint, err := fetcher.ReadCheckpoint(ctx)
	check(err)
	var size uint64
	_, err = fmt.Sscan(strings.Split(string(checkpoint), "\n")[1], &size)
	check(err)
	w := asking.NewWitness(witnessURL, http.DefaultClient)
	cosigned, seen, err := w.Update(ctx, 0, checkpoint, nil)
	if errors.Is(err, witness.ErrCheckpointStale) {
		builder, buildErr := client.NewProofBuilder(ctx, size, fetcher.ReadTile)
		check(buildErr)
		proof, proofErr := builder.ConsistencyProof(ctx, seen, size)
		check(proofErr)
		cosigned, _, err = w.Update(ctx, seen, checkpoint, proof)
	}
	check(err)
	fmt.Printf("%d %d\n%s%s", seen, size, checkpoint, cosigned)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
`

// foreignWitnesses builds omniwitness and the feeder in a separate module.
func foreignWitnesses(t *testing.T) (witness, feed string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module scratch\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "main.go"), feeder)
	for _, args := range [][]string{
		{
			"get", omniwitness + "@" + omniwitnessVersion, omniwitness + "/cmd/omniwitness@" + omniwitnessVersion,
			omniwitness + "/client/http@" + omniwitnessVersion,
		},
		{"mod", "tidy"},
		{"build", "-buildvcs=false", "-o", "omniwitness", omniwitness + "/cmd/omniwitness"},
		{"build", "-buildvcs=false", "-o", "feeder", "."},
	} {
		c := exec.Command("go", args...)
		c.Dir, c.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	return filepath.Join(dir, "omniwitness"), filepath.Join(dir, "feeder")
}

// TestOmniwitness: transparency-dev's witness cosigns our log, and their client gets our witness to cosign it.
func TestOmniwitness(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches and builds a program of others")
	}
	program, feed := foreignWitnesses(t)
	mine, dir, address, listen := t.TempDir(), dataDir(t), freeAddress(t), freeAddress(t)
	secret, public, err := note.GenerateKey(rand.Reader, "omni.example/w")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(public, "+", 3)[2])
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := evidence.NewWitnessKey("omni.example/w", raw[1:])
	if err != nil {
		t.Fatal(err)
	}
	ours, err := evidence.ParseWitnessKey(strings.TrimSpace(must(
		t, nil, "keys", "witness", "--data-dir", dir, "--witness-name", witnessName,
	)))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, "--demo", "--listen", listen)
	s.stop() // the log has a key now
	trusted, err := keyfiles.ReadTrusted(filepath.Join(dir, keyfiles.TrustedKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	key := trusted.LogKeys()[0]
	for _, witness := range []evidence.WitnessKey{theirs, ours} {
		if trusted, err = trusted.AddWitnessKey(witness); err != nil {
			t.Fatal(err)
		}
	}
	theirLog, err := os.Create(filepath.Join(mine, "omniwitness.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer theirLog.Close()
	c := exec.Command(program, "--listen", address, "--metrics_listen", "", "--db_file",
		filepath.Join(mine, "omniwitness.db"), "--private_key_path", write(t, filepath.Join(mine, "key"), secret),
		"--additional_logs",
		write(
			t, filepath.Join(mine, "logs.yaml"),
			fmt.Sprintf(
				"Logs:\n  - Origin: %s\n    URL: %s\n    PublicKey: %s\n    Feeder: none\n", key.Name, s.base, key.VerifierKey,
			),
		))
	c.Stderr = theirLog
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})

	s = start(t, dir, "--demo", "--listen", listen, "--witnesses", theirs.VerifierKey+" http://"+address)
	w := startWitness(t, dir, write(t, filepath.Join(mine, "logs"), key.VerifierKey))
	names := func(note string) string { return strings.Join(trusted.Cosigned(note, time.Now().Add(time.Hour)), " ") }
	var size int64
	for round := range 3 {
		access := s.demo()
		var record wire.Registration
		mustJSON(t, []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base},
			&record, "register",
			write(t, filepath.Join(mine, "document"), fmt.Sprintf("%%PDF %d", round)), "--company", access.CompanyReference,
			"--source", "w", "--document", fmt.Sprintf("d-%d", round), "--version", "1")
		eventually(t, "omniwitness has cosigned", func() error {
			at, err := s.logHead()
			if err == nil && (at.N <= size || names(at.text) != theirs.Name) {
				err = fmt.Errorf("%s\n%s", at.text, tail(theirLog.Name()))
			}
			if err == nil {
				size = at.N
			}
			return err
		})
		fed := exec.Command(feed, s.base+"/api/public/log/", "http://"+w.address)
		out, err := fed.CombinedOutput()
		head, cosigned, _ := strings.Cut(string(out), "\n")
		var seen, submitted int64
		if _, scanErr := fmt.Sscan(head, &seen, &submitted); err != nil || scanErr != nil || submitted < size ||
			(round > 0) != (seen > 0) || names(cosigned) != theirs.Name+" "+ours.Name {
			t.Errorf("round %d: %v\n%s%s", round, err, out, tail(w.logPath))
		}
	}
}
