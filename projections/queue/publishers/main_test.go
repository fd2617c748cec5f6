package publishers_test

import (
	"testing"

	"integrityledger/eventstore/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
