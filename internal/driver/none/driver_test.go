package none_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/driver/none"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
)

func TestPlan(t *testing.T) {
	n := model.Network{Name: "net", Driver: model.DriverNone}
	e := model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web"}
	if err := (none.Driver{}).Validate(n, plan.Facts{}); err != nil {
		t.Fatal(err)
	}
	p := slices.Concat(none.Driver{}.Network(n, plan.Facts{}), none.Driver{}.Endpoint(n, e))
	golden.Text(t, "plan", golden.Session(p))
}

func TestRefuses(t *testing.T) {
	n := model.Network{Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("172.30.0.0/24")}}}
	if err := (none.Driver{}).Validate(n, plan.Facts{}); err == nil {
		t.Error("a subnet is accepted")
	}
}

func TestAttachment(t *testing.T) {
	if at := (none.Driver{}).Attachment(model.Network{}, model.Endpoint{}); at.Link != "" {
		t.Errorf("the attachment has a link: %+v", at)
	}
}
