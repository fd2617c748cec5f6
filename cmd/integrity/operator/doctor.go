package operator

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	nats "github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	gomail "github.com/wneessen/go-mail"
	"golang.org/x/sys/unix"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/mail"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/postgres"
	"integrityledger/handlers/edge"
)

// files checks this shell's limit of open files. A running service may have been started with another limit.
func (d *doctor) files(shards int) {
	const check = "open files"
	limit, err := ledger.OpenFiles()
	if err != nil {
		d.warn(check, said(err), say.Sentencef("look at ulimit -n"))
		return
	}
	clients := ledger.ClientsFor(limit, ledger.DatabaseConns(shards))
	found := say.Sentencef("%d may be open: room for %d connections of clients", limit, max(0, clients))
	d.first(check, found,
		verdict{clients < ledger.OwnFiles, StateFail, found, say.Sentencef(ledger.RaiseFiles)},
		verdict{clients < ledger.FewClients, stateWarn, found, say.Sentencef(ledger.RaiseFiles)})
}

// The outcomes of a check.
const (
	StateOK   = "ok"
	stateWarn = "warn" // works now, but may fail later
	StateFail = "fail" // does not work, or acknowledged records may be lost
)

// finding is the result of one check, and what to do if it is not ok.
type finding struct {
	Check string       `json:"check"`
	State string       `json:"state"`
	Found say.Sentence `json:"found"`
	Do    say.Sentence `json:"do"`
}

// What the directories that the doctor looks at hold.
const uploads, dataDirectory, keptBytes say.Word = "uploads", "data directory", "kept bytes"

// stateWords are the states as people read them.
var stateWords = map[string]say.Word{StateOK: "ok", stateWarn: "warn", StateFail: "fail"}

// doctor collects findings.
type doctor struct {
	*app
	cfg      config.Config
	findings []finding
	issuer   string        // of the ledger, empty if it could not be read
	ahead    time.Duration // how far this machine's clock is ahead of the database's
}

const (
	// doctorTimeout bounds each request to another machine.
	doctorTimeout = 10 * time.Second

	lowDisk, noDisk   = 10 << 30, 1 << 30 // bytes
	lateClock         = time.Second
	endingCertificate = 30 * 24 * time.Hour
)

func (a *app) doctorCommand() *cobra.Command {
	v := a.verb("doctor")
	return v.runs(func() (err error) {
		d := &doctor{app: a}
		d.version()
		if d.cfg, err = config.Load(a.App, v.Command); err != nil {
			for line := range strings.Lines(err.Error()) {
				d.fail("configuration", say.Sentencef("%s", strings.TrimSpace(line)), say.Sentencef("correct the variable"))
			}
			return d.report(v.json) // with wrong settings every other check would look in the wrong place
		}
		ctx := v.Context()
		d.configuration()
		d.keys()
		d.kernelClock()
		d.files(d.cfg.Shards)
		d.database(ctx)
		d.disks()
		d.neighbours(ctx)
		d.witnesses()
		d.timestamps(ctx)
		d.exports(ctx)
		return d.report(v.json)
	})
}

func (d *doctor) ok(check string, found say.Sentence) {
	d.findings = append(d.findings, finding{check, StateOK, found, say.Sentence{}})
}

func (d *doctor) warn(check string, found, do say.Sentence) {
	d.findings = append(d.findings, finding{check, stateWarn, found, do})
}

func (d *doctor) fail(check string, found, do say.Sentence) {
	d.findings = append(d.findings, finding{check, StateFail, found, do})
}

// said is an error as a finding.
func said(err error) say.Sentence { return say.Sentencef("%v", err) }

// run is a command or statement for the operator to run, which is the same in all languages.
func run(command string) say.Sentence { return say.Sentencef("%s", command) }

// verdict is a possible outcome of a check: when it applies, its state, the finding, and the remedy.
type verdict struct {
	holds     bool
	state     string
	found, do say.Sentence
}

// every adds all verdicts that apply, and returns their number.
func (d *doctor) every(check string, verdicts ...verdict) (held int) {
	for _, v := range verdicts {
		if v.holds {
			d.findings = append(d.findings, finding{check, v.state, v.found, v.do})
			held++
		}
	}
	return held
}

// first adds the first verdict that applies. If none does, the check is ok with the text found, unless that is empty.
func (d *doctor) first(check string, found say.Sentence, verdicts ...verdict) {
	for _, v := range append(verdicts, verdict{found.Format != "", StateOK, found, say.Sentence{}}) {
		if d.every(check, v) > 0 {
			return
		}
	}
}

func (d *doctor) report(asJSON bool) error {
	var text strings.Builder
	failed := 0
	for _, f := range d.findings {
		fmt.Fprintf(&text, "%-5s %-15s %s\n", d.Say(stateWords[f.State]), f.Check, d.Say(f.Found))
		if f.Do.Format != "" {
			fmt.Fprintf(&text, "%21s -> %s\n", "", d.Say(f.Do))
		}
		if f.State == StateFail {
			failed++
		}
	}
	if err := d.Print(asJSON, struct {
		Findings []finding `json:"findings"`
		Failed   int       `json:"failed"`
	}{d.findings, failed}, text.String()); err != nil {
		return err
	}
	if failed > 0 {
		return cli.NegativeError("")
	}
	return nil
}

func (d *doctor) version() {
	b := edge.ReadBuild()
	d.ok("program", say.Sentencef("%s, %s", b, b.Go))
}

func (d *doctor) configuration() {
	const check = "configuration"
	for _, name := range config.UnknownVariables(d.App) {
		d.warn(
			check, say.Sentencef("%s has no effect", name),
			say.Sentencef("correct its name or unset it; integrity serve --help lists the variables"),
		)
	}
	address, err := net.ResolveTCPAddr("tcp", d.cfg.Listen)
	if err != nil {
		d.fail(check, said(err), say.Sentencef("set INTEGRITY_LISTEN to an address of this machine"))
	} else if err := d.cfg.DefaultBaseURL(address); err != nil {
		d.fail(check, said(err), say.Sentencef("set INTEGRITY_BASE_URL"))
	} else {
		d.ok(check, say.Sentencef("base URL %s", d.cfg.BaseURL))
	}
	if d.cfg.OperatorName == "" && strings.HasPrefix(d.cfg.BaseURL, "https:") {
		d.warn(
			check, say.Sentencef("no page says who operates the service"),
			say.Sentencef("set INTEGRITY_OPERATOR_NAME to the name of the person or company that does"),
		)
	}
	if _, err := d.cfg.PlanTable(); err != nil {
		d.fail(check, said(err), say.Sentencef("correct the table of plans"))
	}
	if d.cfg.DatabaseURL != "" && d.cfg.DrainDelay == 0 {
		d.warn(
			check, say.Sentencef("INTEGRITY_DRAIN_DELAY is 0s"),
			say.Sentencef(
				"behind a proxy, set it to twice the proxy's health-check interval; otherwise a restart cuts off requests",
			),
		)
	}
	if !d.cfg.Encrypted() {
		d.first("proxy", say.Sentence{},
			verdict{
				!strings.HasPrefix(d.cfg.BaseURL, "https:"), StateOK, say.Sentencef("none needed: the base URL is http"),
				say.Sentence{},
			},
			verdict{
				len(d.cfg.TrustedProxies) == 0, stateWarn,
				say.Sentencef("the base URL is https but the service speaks http, so there must be a proxy, and none is trusted"),
				say.Sentencef(
					"list it in INTEGRITY_TRUSTED_PROXIES: otherwise all visitors share one limit, and MCP clients that sign in by OAuth are refused (403) if the proxy passes a Host other than the base URL's (nginx: proxy_set_header Host $host)",
				),
			},
			verdict{true, StateOK, say.Sentencef("trusted: %v", d.cfg.TrustedProxies), say.Sentence{}})
		return
	}
	shown, err := d.cfg.LoadCertificate()
	if err != nil {
		d.fail("certificate", said(err), say.Sentencef("put certificate and key in place"))
		return
	}
	left, ends := shown.Leaf.NotAfter.Sub(d.Now()), cli.TimeText(shown.Leaf.NotAfter)
	d.first("certificate", say.Sentencef("valid until %s", ends),
		verdict{left <= 0, StateFail, say.Sentencef("it ended at %s", ends), say.Sentencef("renew it, then SIGHUP")},
		verdict{
			left < endingCertificate, stateWarn, say.Sentencef("it ends at %s", ends), say.Sentencef("renew it, then SIGHUP"),
		})
}

func (d *doctor) keys() {
	const check = "keys"
	first := d.cfg.DatabaseURL == "" && !keyfiles.Exists(d.cfg.InDataDir("pgdata"))
	if signer, _, why, err := d.cfg.SigningSource().Read(); err != nil && first {
		d.ok(check, say.Sentencef("none yet; the first start creates them"))
	} else if err != nil {
		d.fail(check, said(err), say.Sentencef("put the key files in place: without them nothing can be signed"))
	} else if why != nil {
		d.fail(
			check, said(why),
			say.Sentencef("registration answers 503; see the operators' manual, Rotations: Signing key; then SIGHUP"),
		)
	} else if err := signer.Check(); err != nil {
		d.fail(
			check, said(err), say.Sentencef("registration and evidence answer 503 until the agent signs; no restart is needed"),
		)
	} else {
		d.ok(check, say.Sentencef("signing key %s, trusted", signer.Key().KeyID))
	}
	d.modes()
	if info, err := os.Stat(d.cfg.TrustedKeysPath()); err == nil && info.Mode().Perm()&0o022 != 0 {
		d.fail(
			check, say.Sentencef("%s may be written by others (mode %04o)", d.cfg.TrustedKeysPath(), info.Mode().Perm()),
			say.Sentencef("chmod 644: anyone who can write it decides which keys are trusted"),
		)
	}
	if path := d.cfg.SecretSource().Path(); path != "" && !first && !keyfiles.Exists(path) {
		d.first("webhooks", say.Sentence{},
			verdict{
				d.cfg.DatabaseURL != "", stateWarn, say.Sentencef("off: no key for webhook secrets is configured"),
				say.Sentencef("set INTEGRITY_SECRET_KEY to the same key on every server"),
			},
			verdict{
				true, stateWarn, say.Sentencef("%s is missing", path),
				say.Sentencef(
					"if the key was lost, restore it: otherwise the next start creates another, and every webhook secret must be rotated",
				),
			})
	}
}

// kernelClock checks whether this machine's clock is synchronized. Every receivedAt is read from this clock.
func (d *doctor) kernelClock() {
	state, err := unix.Adjtimex(&unix.Timex{})
	switch {
	case err != nil:
		d.warn(
			"clock", say.Sentencef("the kernel does not report whether the clock is synchronized: %v", err),
			say.Sentencef("check with chronyc tracking or timedatectl"),
		)
	case state == unix.TIME_ERROR:
		d.warn(
			"clock", say.Sentencef("not synchronized, according to the kernel"),
			say.Sentencef("run chrony or systemd-timesyncd: this clock dates every record (receivedAt)"),
		)
	default:
		d.ok("clock", say.Sentencef("synchronized, according to the kernel"))
	}
}

// database checks the ledger's database, if there is one.
func (d *doctor) database(ctx context.Context) {
	const check = "database"
	url := connect.Fixed(d.cfg.DatabaseURL)
	if d.cfg.DatabaseURL == "" {
		if !keyfiles.Exists(d.cfg.InDataDir("pgdata")) {
			d.ok(check, say.Sentencef("none yet in %s; the first start creates it", d.cfg.DataDir))
			return
		}
		server, err := postgres.StartOrAttach(ctx, postgres.Config{
			DataDir: d.cfg.DataDir, Log: slog.New(slog.DiscardHandler), Purpose: "integrity doctor", Wait: ledger.Patience,
		})
		if err != nil {
			d.fail(check, said(err), say.Sentencef("see postgres.log in the data directory"))
			return
		}
		defer func() {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledger.Closing)
			defer cancel()
			if err := server.Stop(stopping); err != nil {
				d.warn(check, said(err), say.Sentencef("the next start recovers it"))
			}
		}()
		url = connect.Fixed(server.URL(postgres.Database))
	}
	looking, cancel := context.WithTimeout(ctx, 3*doctorTimeout)
	defer cancel()
	if coordinator, err := cluster.Coordinator(looking, url, connect.Fixed(d.cfg.NodeURL)); err == nil {
		// otherwise checkDatabase reports the error
		url = coordinator
	}
	d.checkDatabase(looking, url())
}

// disks checks the free space in the directories that the service writes to.
func (d *doctor) disks() {
	dirs := map[say.Word]string{uploads: os.TempDir()}
	if d.cfg.DatabaseURL == "" {
		dirs = map[say.Word]string{dataDirectory: d.cfg.DataDir}
	}
	if dir, ok := strings.CutPrefix(d.cfg.BlobURL, "file://"); ok {
		dirs[keptBytes], _, _ = strings.Cut(dir, "?")
	}
	for _, what := range slices.Sorted(maps.Keys(dirs)) {
		dir := dirs[what]
		var disk unix.Statfs_t
		if err := unix.Statfs(dir, &disk); err != nil {
			if d.cfg.DatabaseURL != "" || keyfiles.Exists(dir) {
				d.fail(
					"disk", say.Sentencef("%s: %s: %v", what, dir, err), say.Sentencef("create the directory, or configure another"),
				)
			}
			continue
		}
		free := int64(disk.Bavail) * disk.Bsize
		found := say.Sentencef("%s: %.1f GB free in %s", what, float64(free)/1e9, dir)
		d.first("disk", found,
			verdict{free < noDisk, StateFail, found, say.Sentencef("free space: PostgreSQL stops when its disk is full")},
			verdict{
				free < lowDisk, stateWarn, found,
				say.Sentencef("free space; a registration takes about 2 KB, and its WAL 5 KB until the next checkpoint"),
			})
	}
}

// neighbours checks the other servers that the service uses.
func (d *doctor) neighbours(ctx context.Context) {
	for _, n := range []struct {
		check, url string
		ask        func(context.Context) error
		answers    say.Sentence
		state      string
		do         say.Sentence // if the server does not answer
		without    say.Sentence // if no server is configured
	}{
		{
			"blob store", d.cfg.BlobURL, d.askBlobs, say.Sentencef("answers"), StateFail,
			say.Sentencef("uploads by organizations that keep content get 503 until it answers"), say.Sentence{},
		},
		{
			"stream", d.cfg.NATSURL, d.askNATS, say.Sentencef("the broker answers, with JetStream"), stateWarn,
			say.Sentencef("events wait in the ledger until it answers; registrations still work"), say.Sentence{},
		},
		{
			"mail", d.cfg.SMTPURL, d.askSMTP, say.Sentencef("the server answers, and accepts the password if one is set"),
			stateWarn, say.Sentencef("warnings wait for 72 hours and are dropped then"),
			say.Sentencef("no server: warnings are shown, but not mailed"),
		},
		{
			"sign-in", d.cfg.OAuthIssuer, d.askOAuth, say.Sentencef("the issuer answers"), StateFail,
			say.Sentencef("sign-in and OAuth tokens fail until INTEGRITY_OAUTH_ISSUER answers at " +
				"/.well-known/openid-configuration; API keys still work"),
			say.Sentence{},
		},
	} {
		if n.url == "" {
			d.every(n.check, verdict{n.without.Format != "", StateOK, n.without, say.Sentence{}})
			continue
		}
		looking, cancel := context.WithTimeout(ctx, doctorTimeout)
		err := n.ask(looking)
		cancel()
		if err != nil {
			n.answers = said(err)
		}
		d.first(n.check, n.answers, verdict{err != nil, n.state, n.answers, n.do})
	}
}

func (d *doctor) askBlobs(ctx context.Context) error {
	store := blobs.Store{URL: d.cfg.BlobURL, Sync: keyfiles.Sync}
	return store.Check(ctx)
}

func (d *doctor) askSMTP(ctx context.Context) error {
	server, err := mail.ParseServer(d.cfg.SMTPURL)
	if err != nil {
		return err
	}
	client, err := gomail.NewClient(server.Host, server.Options(d.cfg.BaseURL, doctorTimeout)...)
	if err != nil {
		return err
	}
	if err := client.DialWithContext(ctx); err != nil {
		return err
	}
	return client.Close()
}

func (d *doctor) askNATS(context.Context) error {
	options := []nats.Option{nats.Name("integrity doctor"), nats.Timeout(doctorTimeout)}
	if d.cfg.NATSCredentials != "" {
		options = append(options, nats.UserCredentials(d.cfg.NATSCredentials))
	}
	connected, err := nats.Connect(d.cfg.NATSURL, options...)
	if err != nil {
		return err
	}
	defer connected.Close()
	stream, err := connected.JetStream(nats.MaxWait(doctorTimeout))
	if err != nil {
		return err
	}
	_, err = stream.AccountInfo()
	return err
}
