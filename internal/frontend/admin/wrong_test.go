package admin_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/admin/admintest"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
)

// ailing is a daemon with objects that need attention beside some that do not.
type ailing struct {
	admin.AttachmentCalls
	admin.PublishCalls
	admin.ServiceCalls
}

func (ailing) Attachments() []api.View {
	named := func(name string, status api.Status, publishes ...api.PublishedView) api.View {
		return api.View{Attachment: model.Attachment{Endpoint: model.Endpoint{Name: name}}, Status: status,
			Publishes: publishes}
	}
	return []api.View{named("fine", api.Up, api.PublishedView{}), named("broken", api.Broken),
		named("taken", api.Up, api.PublishedView{}, api.PublishedView{Problem: "another process has port 80"})}
}

func (ailing) Services() []api.ServiceView {
	named := func(name string, states ...api.RealStatus) api.ServiceView {
		v := api.ServiceView{VirtualService: model.VirtualService{Name: name}, Status: api.ServiceUp}
		for i, s := range states {
			v.Servers = append(v.Servers, api.RealView{Port: uint16(i), State: s})
		}
		return v
	}
	down := named("down")
	down.Status = api.ServiceDown
	return []api.ServiceView{named("fine", api.RealUp),
		named("partly", api.RealUp, api.RealDown, api.RealDraining), down}
}

func (ailing) Stats(context.Context) api.Stats { panic("all counters are read") }
func (ailing) Fill() api.Stats                 { return api.Stats{Conntrack: &counter.Fill{Entries: 9, Max: 10}} }

// TestWrong asks for what needs attention. The daemon sends nothing else.
func TestWrong(t *testing.T) {
	c := admin.NewClient(admintest.Serve(t, admin.Daemon{Attachments: ailing{}, Publishes: ailing{},
		Services: ailing{}, Stats: ailing{}}))
	views, err := c.WrongAttachments(t.Context())
	if err != nil || len(views) != 2 || views[0].Name != "broken" || views[1].Name != "taken" {
		t.Errorf("%+v, %v", views, err)
	}
	services, err := c.WrongServices(t.Context())
	if err != nil || len(services) != 2 || services[0].Name != "partly" || len(services[0].Servers) != 2 ||
		services[1].Name != "down" {
		t.Errorf("%+v, %v", services, err)
	}
	all, err := c.Services(t.Context())
	if err != nil || len(all) != 3 || len(all[1].Servers) != 3 {
		t.Errorf("all services: %+v, %v", all, err)
	}
	if s, err := c.Fill(t.Context()); err != nil || s.Conntrack == nil || s.Conntrack.Entries != 9 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestFirst asks for what a page of a few rows shows first. The daemon sends nothing else, and says how many there are.
func TestFirst(t *testing.T) {
	c := admin.NewClient(admintest.Serve(t, admin.Daemon{Attachments: ailing{}, Publishes: ailing{},
		Services: ailing{}, Stats: ailing{}}))
	for n, want := range map[int]string{-1: "", 0: "", 1: "down[] partly[1]", 2: "down[] fine[] partly[1 2]",
		9: "down[] fine[0] partly[1 2 0]"} {
		first, err := c.FirstServices(t.Context(), n)
		var got []string
		for _, s := range first.Services {
			var ports []uint16
			for _, r := range s.Servers {
				ports = append(ports, r.Port)
			}
			got = append(got, fmt.Sprint(s.Name, ports))
		}
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want || first.Total != (api.ServiceTotal{Services: 3, Reals: 4}) {
			t.Errorf("%d rows: %q, want %q; %+v, %v", n, got, want, first.Total, err)
		}
	}
}
