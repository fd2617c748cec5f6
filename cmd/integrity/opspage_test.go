package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"integrityledger/handlers/wire"
)

// TestOpsPage: in a browser, while registrations come in, the page draws every chart with its unit, shows the
// registrations, reports a service that has gone, and contacts only the service. With SCREENSHOTS it saves screenshots.
func TestOpsPage(t *testing.T) {
	t.Parallel()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Fatal("the page needs Chromium (Debian: sudo apt-get install chromium)")
	}
	address := freeAddress(t)
	s := start(t, dataDir(t), "--demo", "--metrics-listen", address)
	loading, stopLoad := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { s.register(loading) })
	defer load.Wait()
	defer stopLoad()

	allocator, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(patient),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))...)
	defer stop()
	within, cancel := context.WithTimeout(allocator, patient)
	defer cancel()
	page, closePage := chromedp.NewContext(within)
	defer closePage()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(chromedp.Do(page))
	var mu sync.Mutex
	var wrong []string
	check(chromedp.Listen(page, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "http://"+address+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
				wrong = append(wrong, "asks "+e.Request.URL)
			}
		case *cdpruntime.EventExceptionThrown:
			wrong = append(wrong, e.ExceptionDetails.Text)
		}
	}))
	_, err := chromedp.Call(page, network.Enable, network.EnableParams{})
	check(err)
	check(chromedp.Do(page, chromedp.Navigate("http://"+address+"/ops")))
	text := func() string {
		t.Helper()
		shown, err := chromedp.Run(page, chromedp.Evaluate[string](`document.body.innerText`))
		check(err)
		return shown
	}
	eventually(t, "the page has drawn what happens", func() error {
		shown := text()
		for _, part := range []string{"signing key trusted, database answers", "Requests", "per second",
			"Latency of requests", "milliseconds", "Lag",
			"Outbox: oldest due", "seconds", "Storage by table", "versions", "KiB", "now"} {
			if !strings.Contains(shown, part) {
				return fmt.Errorf("no %q in %s", part, shown)
			}
		}
		if strings.Contains(shown, "registrations 0\n") || strings.Contains(shown, "registrations –") {
			return fmt.Errorf("no registrations: %s", shown)
		}
		lines, err := chromedp.Run(
			page,
			chromedp.Evaluate[int](
				`document.querySelectorAll("figure").length * 100 + [...document.querySelectorAll("figure > svg polyline")].filter(p => p.points.length > 2).length`,
			),
		)
		if err != nil || lines/100 != 9 || lines%100 < 10 {
			return fmt.Errorf("%d figures with %d lines: %w", lines/100, lines%100, err)
		}
		return nil
	})
	if directory := os.Getenv("SCREENSHOTS"); directory != "" {
		check(os.MkdirAll(directory, 0o700))
		for _, look := range []struct {
			scheme string
			width  int64
		}{{"light", 1280}, {"dark", 1280}, {"light", 390}, {"dark", 390}} {
			_, err := chromedp.Call(
				page, emulation.SetDeviceMetricsOverride,
				emulation.SetDeviceMetricsOverrideParams{Width: look.width, Height: 900, DeviceScaleFactor: 1},
			)
			check(err)
			_, err = chromedp.Call(
				page, emulation.SetEmulatedMedia,
				emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}},
				},
			)
			check(err)
			picture, err := chromedp.Run(page, chromedp.FullScreenshot(100))
			check(err)
			check(os.WriteFile(filepath.Join(directory, fmt.Sprintf("ops-%s-%d.png", look.scheme, look.width)), picture, 0o600))
		}
	}
	stopLoad()
	load.Wait()
	s.stop()
	eventually(t, "the page tells that the service is gone", func() error {
		if !strings.Contains(text(), "No answer from the service") {
			return errors.New("it does not say so")
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if wrong != nil {
		t.Errorf("the page: %v", wrong)
	}
}

// register registers one document after the other until ctx ends.
func (s *running) register(ctx context.Context) {
	access := s.demo()
	client := &http.Client{Timeout: 20 * time.Second}
	d := wire.Declaration{
		CompanyReference: access.CompanyReference, Source: "load", Version: 1, SHA256: strings.Repeat("ab", 32), SizeBytes: 1,
		MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	}
	for n := 0; ctx.Err() == nil; n++ {
		d.DocumentReference = fmt.Sprint(n)
		if status, err := call(
			client, http.MethodPost, s.base+"/api/v1/integrity/records", access.Keys.Worker, d, nil,
		); err != nil || status != http.StatusCreated {
			// The plan's limit per minute is reached, or the service is stopping.
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}
