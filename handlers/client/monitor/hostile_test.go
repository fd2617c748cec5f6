package monitor_test

import (
	"errors"
	"testing"
	"time"

	"integrityledger/eventstore/outbound/peertest"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/monitor"
)

// A log that delays its monitor counts as an outage, which is no alarm.
func TestHostilePeers(t *testing.T) {
	for name, shape := range peertest.Shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t, 3)
			service, err := client.New(client.Config{BaseURL: peertest.Serve(t, shape), Timeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(service.Close)
			w.Client = service
			_, err = w.check(w.kept())
			if err == nil || errors.As(err, new(*monitor.AlarmError)) {
				t.Error(err)
			}
		})
	}
}
