package acme_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/gateway/acme/acmetest"
	model "fairlead/internal/model/gateway"
)

// dnsWorld is a world with a resolver that proves names by DNS-01, and with a zone.
func dnsWorld(t *testing.T, provider string, records func(name string) []string) *world {
	t.Helper()
	at, stop, err := acmetest.Zone(records)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	w := newWorld(t, acmetest.Options{DNS: at}, model.Resolver{DNSChallenge: &model.DNSChallenge{Provider: provider,
		Resolvers: []string{at}}})
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`b.a.test`)", model.Domain{Main: "*.a.test"})})
	return w
}

// script writes a program for the provider exec, and returns the directory where it keeps the records.
func script(t *testing.T, text string) (records string) {
	t.Helper()
	records = t.TempDir()
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nset -eu\ncd "+records+"\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("EXEC_PATH", path)
	return records
}

// TestExec obtains a certificate for a wildcard with a program that changes the records.
func TestExec(t *testing.T) {
	at := script(t, `case $1 in
present) echo "$3" >"$2" ;;
cleanup) grep -qx -e "$3" "$2" && rm "$2" ;;
esac
echo "$1" >>../log
`)
	w := dnsWorld(t, "exec", func(name string) []string {
		text, err := os.ReadFile(filepath.Join(at, name))
		if err != nil {
			return nil
		}
		return []string{strings.TrimSpace(string(text))}
	})
	stop := w.start()
	w.until("*.a.test", valid)
	if got := w.served("b.a.test").DNSNames; !slices.Equal(got, []string{"*.a.test"}) {
		t.Errorf("certificate for %v", got)
	}
	stop()
	log, err := os.ReadFile(filepath.Join(at, "..", "log"))
	if err != nil || string(log) != "present\ncleanup\n" {
		t.Errorf("the program was called for %q, %v", log, err)
	}
	if left, err := os.ReadDir(at); err != nil || len(left) > 0 {
		t.Errorf("records %v are left, %v", left, err)
	}
}

// TestExecFails checks that the state says that the program has failed.
func TestExecFails(t *testing.T) {
	script(t, "echo no permission >&2\nexit 3\n")
	w := dnsWorld(t, "exec", func(string) []string { return nil })
	w.start()
	if s := w.until("*.a.test", failed); !strings.Contains(s.Reason, "exit status 3") {
		t.Errorf("reason %q", s.Reason)
	}
}

// TestHTTPRequests obtains a certificate for a wildcard with a server that changes the records.
func TestHTTPRequests(t *testing.T) {
	var mu sync.Mutex
	records, calls := map[string][]string{}, ""
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var change struct{ FQDN, Value string }
		user, password, _ := r.BasicAuth()
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil || user != "ann" || password != "secret" {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		calls += r.Method + " " + r.URL.Path + "\n"
		if records[change.FQDN] = []string{change.Value}; strings.HasSuffix(r.URL.Path, "/cleanup") {
			delete(records, change.FQDN)
		}
	}))
	t.Cleanup(hook.Close)
	t.Setenv("HTTPREQ_ENDPOINT", hook.URL+"/dns")
	t.Setenv("HTTPREQ_USERNAME", "ann")
	t.Setenv("HTTPREQ_PASSWORD", "secret")
	w := dnsWorld(t, "httpreq", func(name string) []string {
		mu.Lock()
		defer mu.Unlock()
		return records[name]
	})
	stop := w.start()
	w.until("*.a.test", valid)
	if got := w.served("b.a.test").DNSNames; !slices.Equal(got, []string{"*.a.test"}) {
		t.Errorf("certificate for %v", got)
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	if calls != "POST /dns/present\nPOST /dns/cleanup\n" || len(records) > 0 {
		t.Errorf("requests %q, records %v are left", calls, records)
	}
}
