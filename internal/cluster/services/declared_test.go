package services_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// files returns what a set of files declares: service web, and others with further addresses.
func files(set string, names ...string) api.Spec {
	s := api.Spec{Set: set}
	for i, name := range names {
		v := web().ClusterService
		v.Name = name
		for range i {
			v.Addresses[0] = v.Addresses[0].Next()
		}
		s.ClusterServices = append(s.ClusterServices, v)
	}
	return s
}

// applies applies a Spec, and returns the changes as one text.
func (w *world) applies(s api.Spec) string {
	w.Helper()
	defer synctest.Wait()
	changes, err := w.services.Apply(w.Context(), s, false)
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, c := range changes {
		all = append(all, fmt.Sprintf("%s %s", c.Action, c.Name))
	}
	return strings.Join(all, ", ")
}

// TestApply creates, changes and removes services with files.
func TestApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := func(s api.Spec, want string) {
			t.Helper()
			if got := w.applies(s); got != want {
				t.Errorf("set %q: %q, want %q", s.Set, got, want)
			}
		}
		changes, err := w.services.Apply(t.Context(), files("shop", "web"), true)
		if len(changes) != 1 || err != nil {
			t.Errorf("a dry run returns %v, %v", changes, err)
		}
		want(files(""), "")
		want(files("shop", "web", "blog"), "created blog, created web")
		want(files("shop", "web", "blog"), "")
		want(files(""), "")
		want(files("other"), "")
		want(files("other", "web"), "")
		drained := files("shop", "web", "blog")
		drained.ClusterServices[1].Ingress = []string{"host1"}
		want(drained, "changed blog")
		want(files("shop", "blog"), "changed blog, removed web") // which has the address of web now
		want(files("shop", "web"), "removed blog, created web")
		if err := w.services.SetService(t.Context(), web()); err != nil {
			t.Errorf("a command with the same settings: %v", err)
		}
		order := web()
		order.Quorum = 2
		for _, err := range []error{w.services.SetService(t.Context(), order),
			w.services.RemoveService(t.Context(), "web")} {
			if api.CodeOf(err) != api.Conflict || !strings.Contains(err.Error(), "the files of set shop declare it") {
				t.Errorf("a command: %v", err)
			}
		}
		want(files("shop"), "removed web")
		if err := w.services.SetService(t.Context(), web()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want(files("shop", "web"), "adopted web")
		want(files("shop", "web"), "")
		want(files("shop"), "removed web")
		if err := w.services.SetService(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		differs := files("shop", "web")
		differs.Adopt = true
		want(differs, "changed web")
	})
}

// TestApplyRefuses applies what cannot be applied. Nothing changes.
func TestApplyRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.services.SetService(t.Context(), web()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := w.Snapshot().Revision()
		invalid, twice, large := files("shop", "blog", "news"), files("shop", "blog", "blog2"), files("shop")
		invalid.ClusterServices[0].Addresses[0] = addr("10.9.3.1")
		invalid.ClusterServices[1].Ingress = []string{"host9"}
		twice.ClusterServices[0].Addresses = []netip.Addr{addr("198.51.100.90")}
		twice.ClusterServices[1].Addresses = []netip.Addr{addr("198.51.100.90")}
		differs := files("shop", "web")
		differs.ClusterServices[0].Quorum = 2
		for i := range 100 {
			large.ClusterServices = append(large.ClusterServices, files("shop", fmt.Sprint("s", i)).ClusterServices[0])
			large.ClusterServices[i].Ports = []model.PortRange{model.Port(uint16(1000 + i))}
		}
		for want, s := range map[string]api.Spec{
			"clusterServices[0]: service blog: address 10.9.3.1: it is in subnet": invalid,
			"clusterServices[1]: service news: ingress host9":                     invalid,
			"clusterServices[1]: service blog2: 198.51.100.90:80/tcp already":     twice,
			"need a set with a name": files("", "web"),
			"differs from the file, and a command created it: remove it with `fairlead service rm --cluster web`": differs,
			"divide the set": large,
		} {
			_, err := w.services.Apply(t.Context(), s, false)
			var all api.Mistakes
			if text := fmt.Sprint(err); !errors.As(err, &all) && want != "divide the set" ||
				!strings.Contains(text, want) && !strings.Contains(located(all), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		w.client.Set(kvtest.Refused)
		good := files("shop", "", "blog")
		good.ClusterServices = good.ClusterServices[1:]
		if _, err := w.services.Apply(t.Context(), good, false); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("without the store: %v", err)
		}
		w.client.Set(kvtest.Works)
		if now := w.Snapshot().Revision(); now != before {
			t.Errorf("the revision is %d, and was %d", now, before)
		}
		if err := w.services.Leave(); err != nil {
			t.Error(err)
		}
		if got := w.applies(files("shop", "web")); !strings.Contains(got, "it belongs to a cluster, and ") {
			t.Errorf("without a cluster: %s", got)
		}
		if got := w.applies(files("shop")); got != "" {
			t.Errorf("without a cluster and services: %s", got)
		}
	})
}

// located returns mistakes with their places.
func located(all api.Mistakes) string {
	var lines []string
	for _, m := range all {
		lines = append(lines, m.At+": "+m.Text)
	}
	return strings.Join(lines, "\n")
}

// TestApplyMeanwhile applies the same files when another host has just done so, and when the answer of the
// store is lost.
func TestApplyMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		spec := files("shop", "web")
		other := spec.ClusterServices[0].VirtualService.Clone()
		other.Origin, other.Forward, other.Plane = model.FileSet("shop"), model.ForwardDirect, model.PlaneEBPF
		w.follower.Set(kvtest.Refused)
		w.put("svcs/web", record.Service{Spec: other})
		w.ChangeElsewhere() // no snapshot will have this revision
		time.AfterFunc(time.Second, func() { w.follower.Set(kvtest.Works) })
		if got := w.applies(spec); got != "" {
			t.Errorf("after another host: %q", got)
		}
		w.client.Set(kvtest.AnswerLost)
		time.AfterFunc(time.Second, func() { w.client.Set(kvtest.Works) })
		if got := w.applies(files("shop", "web", "blog")); got != "" {
			t.Errorf("with a lost answer: %q", got)
		}
		if got := w.applies(files("shop", "web", "blog")); got != "" {
			t.Errorf("afterwards: %q", got)
		}
	})
}
