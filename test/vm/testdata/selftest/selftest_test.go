// Package selftest_test runs in a guest, started by the tests of package vm, which check how tests
// that do not pass are reported.
package selftest_test

import (
	"testing"
	"time"
)

func TestFails(t *testing.T) { t.Fatal("fails on purpose") }

func TestSkips(t *testing.T) { t.Skip("skips on purpose") }

func TestHangs(t *testing.T) { time.Sleep(time.Hour) }
