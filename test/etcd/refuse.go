package etcd

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"fairlead/test/place"
)

// Password is that of all users.
const Password = "secret"

// Users are the users of a cluster that asks for them: root, and one that may use the keys with a prefix.
type Users struct {
	t         testing.TB
	root      *clientv3.Client
	name, key string
}

// AskForUsers makes the cluster ask for a user, and adds the one with this name, which may read and write the keys
// that begin with prefix.
func (c *Cluster) AskForUsers(name, prefix string) *Users {
	c.t.Helper()
	u := &Users{t: c.t, root: Client(c.t, c.Members[0]), name: name, key: prefix}
	for _, user := range []string{"root", name} {
		u.do(func(ctx context.Context) error { _, err := u.root.UserAdd(ctx, user, Password); return err })
		u.do(func(ctx context.Context) error { _, err := u.root.RoleAdd(ctx, user); return err })
		u.do(func(ctx context.Context) error { _, err := u.root.UserGrantRole(ctx, user, user); return err })
	}
	u.Grant()
	u.do(func(ctx context.Context) error { _, err := u.root.AuthEnable(ctx); return err })
	var err error
	if u.root, err = clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "root", Password: Password,
		Logger: zap.NewNop(), DialOptions: dialOptions(c.Members[0].In)}); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { u.root.Close() })
	return u
}

// Grant lets the user use the keys.
func (u *Users) Grant() {
	u.t.Helper()
	u.do(func(ctx context.Context) error {
		_, err := u.root.RoleGrantPermission(ctx, u.name, u.key, clientv3.GetPrefixRangeEnd(u.key),
			clientv3.PermissionType(clientv3.PermReadWrite))
		return err
	})
}

// Revoke ends Grant.
func (u *Users) Revoke() {
	u.t.Helper()
	u.do(func(ctx context.Context) error {
		_, err := u.root.RoleRevokePermission(ctx, u.name, u.key, clientv3.GetPrefixRangeEnd(u.key))
		return err
	})
}

// Fill raises the alarm that etcd raises when its quota is reached, until the returned function is called.
func (u *Users) Fill() (end func()) {
	u.t.Helper()
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		u.t.Helper()
		u.do(func(ctx context.Context) error {
			status, err := u.root.Status(ctx, u.root.Endpoints()[0])
			if err == nil {
				etcd := etcdserverpb.NewMaintenanceClient(u.root.ActiveConnection())
				_, err = etcd.Alarm(ctx, &etcdserverpb.AlarmRequest{Action: action, MemberID: status.Header.MemberId,
					Alarm: etcdserverpb.AlarmType_NOSPACE})
			}
			return err
		})
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	return func() { alarm(etcdserverpb.AlarmRequest_DEACTIVATE) }
}

func (u *Users) do(request func(context.Context) error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), place.Timeout)
	defer cancel()
	if err := request(ctx); err != nil {
		u.t.Fatalf("change etcd: %v", err)
	}
}
