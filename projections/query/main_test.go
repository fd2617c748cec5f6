package query_test

import (
	"testing"

	"integrityledger/cmd/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
