package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// recordedPort is the port at which a member serves clients whose transactions are recorded.
const recordedPort = 2378

// Operation is a transaction of a client.
type Operation struct {
	Call, Ended time.Time
	Request     *etcdserverpb.TxnRequest
	// Response is nil if the outcome is unknown.
	Response *etcdserverpb.TxnResponse
}

// Recorder is between clients and the members of a cluster, and keeps all transactions.
type Recorder struct {
	mu  sync.Mutex
	all []Operation
	// amend changes a transaction before it is passed; it may be nil.
	amend func(*etcdserverpb.TxnRequest)
	// Endpoints are the URLs for clients.
	Endpoints []string
}

// Record starts a Recorder, until the test ends.
func (c *Cluster) Record() *Recorder { return c.record(nil) }

func (c *Cluster) record(amend func(*etcdserverpb.TxnRequest)) *Recorder {
	c.t.Helper()
	r := &Recorder{amend: amend}
	for _, m := range c.Members {
		r.serve(c.t, m)
		r.Endpoints = append(r.Endpoints, fmt.Sprintf("http://%s:%d", m.Host, recordedPort))
	}
	return r
}

// Operations returns the transactions so far, in the order in which they have ended.
func (r *Recorder) Operations() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Operation{}, r.all...)
}

// serve passes requests of clients to a member.
func (r *Recorder) serve(t testing.TB, m *Member) {
	t.Helper()
	soon := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}
	to, err := grpc.NewClient("passthrough:///"+fmt.Sprintf("%s:%d", m.Host, ClientPort),
		append(dialOptions(m.In), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(unread{}), grpc.MaxCallRecvMsgSize(16<<20)))...)
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	err = m.In(func() (err error) {
		at := fmt.Sprintf("%s:%d", m.Host, recordedPort)
		listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(unread{}), grpc.MaxRecvMsgSize(16<<20),
		grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error { return r.pass(in, to) }))
	go func() { _ = s.Serve(listener) }() // until Stop
	t.Cleanup(func() { s.Stop(); to.Close() })
}

// unread is a codec for messages that are passed as they are.
type unread struct{}

func (unread) Name() string { return encoding.GetCodecV2("proto").Name() }

func (unread) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (unread) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// pass passes one call, and records it if it is a transaction.
func (r *Recorder) pass(in grpc.ServerStream, to *grpc.ClientConn) error {
	method, _ := grpc.MethodFromServerStream(in)
	headers, _ := metadata.FromIncomingContext(in.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(in.Context(), headers))
	defer cancel()
	out, err := to.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	if strings.HasSuffix(method, "/Txn") {
		return r.transaction(in, out)
	}
	go func() {
		for {
			var m []byte
			err := in.RecvMsg(&m)
			switch {
			case errors.Is(err, io.EOF):
				_ = out.CloseSend() // the other direction has the error
				return
			case err != nil || out.SendMsg(&m) != nil:
				return
			}
		}
	}()
	for {
		var m []byte
		if err := out.RecvMsg(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := in.SendMsg(&m); err != nil {
			return err
		}
	}
}

func (r *Recorder) transaction(in grpc.ServerStream, out grpc.ClientStream) error {
	var request, response []byte
	if err := in.RecvMsg(&request); err != nil {
		return err
	}
	op := Operation{Call: time.Now(), Request: &etcdserverpb.TxnRequest{}}
	if err := proto.Unmarshal(request, op.Request); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if r.amend != nil {
		r.amend(op.Request)
		amended, err := proto.Marshal(op.Request)
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		request = amended
	}
	err := errors.Join(out.SendMsg(&request), out.CloseSend())
	if err == nil {
		err = out.RecvMsg(&response)
	}
	if err == nil {
		op.Response = &etcdserverpb.TxnResponse{}
		if err := proto.Unmarshal(response, op.Response); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
	}
	op.Ended = time.Now()
	r.mu.Lock()
	r.all = append(r.all, op)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return in.SendMsg(&response)
}
