package host_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/driver/host"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
)

func TestPlan(t *testing.T) {
	n := model.Network{Name: "net", Driver: model.DriverHost}
	e := model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web"}
	if err := (host.Driver{}).Validate(n, plan.Facts{}); err != nil {
		t.Fatal(err)
	}
	p := slices.Concat(host.Driver{}.Network(n, plan.Facts{}), host.Driver{}.Endpoint(n, e))
	golden.Text(t, "plan", golden.Session(p))
}

func TestRefuses(t *testing.T) {
	n := model.Network{Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("172.30.0.0/24")}}}
	if err := (host.Driver{}).Validate(n, plan.Facts{}); err == nil {
		t.Error("a subnet is accepted")
	}
}

func TestAttachment(t *testing.T) {
	if at := (host.Driver{}).Attachment(model.Network{}, model.Endpoint{}); at.Link != "" {
		t.Errorf("the attachment has a link: %+v", at)
	}
}
