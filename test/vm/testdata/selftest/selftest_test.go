// Package selftest_test is run in a guest by the tests of package vm, which
// look at what becomes of tests that do not pass.
package selftest_test

import (
	"testing"
	"time"
)

func TestFails(t *testing.T) { t.Fatal("as it shall") }

func TestSkips(t *testing.T) { t.Skip("as it shall") }

func TestHangs(t *testing.T) { time.Sleep(time.Hour) }
