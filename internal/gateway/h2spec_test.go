package gateway_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"
	"fairlead/test/place"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	h2spec "github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

// specCases is the number of cases of h2spec in strict mode.
const specCases = 146

// TestH2Spec runs h2spec against the gateway, with and without TLS. All cases must pass.
func TestH2Spec(t *testing.T) {
	w := newWorld(t, model.Static{})
	host, port, _ := net.SplitHostPort(w.address)
	number, _ := strconv.Atoi(port)
	rule := fmt.Sprintf("Host(`%s`)", host)
	w.apply(map[string]*model.Router{"r@file": {Rule: rule, Service: "s@file"},
		"tls@file": {Rule: rule, Service: "s@file", TLS: &model.RouterTLS{}}},
		map[string]*model.Service{"s@file": server(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("the body of the response"))
		})})
	for _, secure := range []bool{false, true} {
		c := &config.Config{Host: host, Port: number, Path: "/", Timeout: place.Timeout, MaxHeaderLen: 4000,
			Strict: true, TLS: secure, Insecure: true}
		cases := 0
		for _, group := range []*spec.TestGroup{generic.Spec(), h2spec.Spec(), hpack.Spec()} {
			silently(t, func() { group.Test(c) })
			cases += report(t, group, secure)
		}
		if cases != specCases {
			t.Errorf("TLS %v: %d cases have passed, want %d", secure, cases, specCases)
		}
	}
}

// report reports the cases of a group that fail, and returns how many have passed.
func report(t *testing.T, group *spec.TestGroup, secure bool) (passed int) {
	for _, list := range [][]*spec.TestCase{group.Tests, group.StrictTests} {
		for i, c := range list {
			switch r := c.Result; {
			case r == nil || r.Skipped:
				t.Errorf("TLS %v: %s/%d was not run: %s", secure, group.ID(), i+1, c.Desc)
			case r.Failed:
				t.Errorf("TLS %v: %s/%d: %s: %v", secure, group.ID(), r.Sequence, c.Desc,
					strings.ReplaceAll(r.Error.Error(), "\n", "; "))
			default:
				passed++
			}
		}
	}
	for _, g := range group.Groups {
		passed += report(t, g, secure)
	}
	return passed
}

// silently runs a function without the standard output, where h2spec prints.
func silently(t *testing.T, f func()) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	out := os.Stdout
	defer func() { os.Stdout = out }()
	os.Stdout = null
	f()
}
