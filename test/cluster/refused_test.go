package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/test/etcd"
)

// TestRefused lets a real etcd answer questions and refuse changes, in several ways. The status of the cluster, its
// exit code and the doctor say so with the cause, until etcd accepts changes again.
func TestRefused(t *testing.T) {
	l := newLANWith(t, 3)
	l.init()
	one := l.hosts[0]
	accepted := func(when string) {
		t.Helper()
		said := ""
		l.until(when+", etcd accepts changes", func() bool {
			var err error
			said, err = one.Try("cluster", "status")
			return err == nil
		})
		if !strings.Contains(said, " ok") || strings.Contains(said, "refuses changes") {
			t.Errorf("%s, the status is\n%s", when, said)
		}
	}
	refused := func(when string, want ...string) {
		t.Helper()
		// The first cause can be another one, such as a connection that has ended.
		l.until(fmt.Sprintf("%s, etcd refuses changes: %q", when, want), func() bool {
			said, err := one.Try("cluster", "status")
			return err != nil && !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(said, w) })
		})
		said, _ := one.Try("cluster", "status")
		found, err := one.Try("doctor")
		if err == nil {
			t.Errorf("%s, the exit code of the doctor is 0", when)
		}
		for _, w := range want {
			if !strings.Contains(said, w) || !strings.Contains(found, w) {
				t.Errorf("%s, want %q in the status\n%s\nand in the doctor's findings\n%s", when, w, said, found)
			}
		}
		if strings.Contains(said, " ok") {
			t.Errorf("%s, a server is shown as ok:\n%s", when, said)
		}
	}
	accepted("at first")
	users := l.etcd.AskForUsers("fairlead", "/fairlead/v1/default/")
	refused("without a user", "user name is empty", "give --etcd-user and --etcd-password-file")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(etcd.Password), 0o600); err != nil {
		t.Fatal(err)
	}
	one.Run("cluster", "etcd", "--etcd", strings.Join(l.endpoints, ","), "--etcd-user", "fairlead",
		"--etcd-password-file", file)
	accepted("with a user")
	users.Revoke()
	refused("without the permission", "permission denied", "grant the user read and write access")
	users.Grant()
	accepted("with the permission")
	end := users.Fill()
	refused("when the quota is reached", "database space exceeded", "compact and defragment it, then disarm the alarm")
	end()
	accepted("after the alarm")
	for _, m := range l.etcd.Members[1:] {
		m.Kill()
	}
	refused("without a quorum", "more than half of etcd's servers must run")
	for _, m := range l.etcd.Members[1:] {
		m.Start()
	}
	accepted("with a quorum")
}
