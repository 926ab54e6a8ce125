package certificates

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model/gateway"
)

// Question is the kind of the question that Answer answers.
const Question = "certificate-challenge"

const (
	// answerLimit is how long the gateways may take to use a challenge.
	answerLimit = 10 * time.Second
	// answerPause is how long a node that did not answer is left alone.
	answerPause = 250 * time.Millisecond
)

// question asks whether a node's gateway uses the snapshot with a revision.
type question struct {
	Revision int64 `json:"revision"`
}

// answer is that of a node whose gateway uses it, or that has no gateway.
type answer struct {
	Gateway bool `json:"gateway"`
}

// Answer answers the question of another node when the gateway uses the snapshot.
func (c *Certificates) Answer(ctx context.Context, _ string, text json.RawMessage) (any, error) {
	var q question
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, fmt.Errorf("read question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	gateway := false
	err := c.until(ctx, func() bool {
		gateway = c.changed != nil
		return !gateway || c.applied >= q.Revision
	}, "the gateway does not use the challenge yet")
	return answer{gateway}, err
}

// challengeKey returns the key of a challenge's record.
func challengeKey(lock string, ch gateway.Challenge) string {
	sum := sha256.Sum256([]byte(ch.Token + " " + ch.Name))
	return record.Key(record.Challenges, lock, hex.EncodeToString(sum[:8]))
}

// Present publishes a challenge of the certificate whose lock this process has. It returns when the gateways
// of all nodes that are alive use it. It does not wait longer than answerLimit for another node.
func (c *Certificates) Present(ctx context.Context, lock string, ch gateway.Challenge) error {
	key := challengeKey(lock, ch)
	text, err := json.Marshal(ch)
	if err != nil {
		return fmt.Errorf("publish challenge: %w", err)
	}
	change, err := c.sealed(key, text)
	if err != nil {
		return fmt.Errorf("publish challenge: %w", err)
	}
	revision, err := c.write(ctx, lock, change)
	if err != nil {
		return fmt.Errorf("publish challenge: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var asking sync.WaitGroup
	for id, name := range c.others() {
		asking.Go(func() {
			if err := c.ask(limited, id, revision); err != nil && ctx.Err() == nil {
				c.cfg.Log.Warn("a node may not answer a challenge", "node", name, "error", err)
			}
		})
	}
	err = c.until(limited, func() bool { return c.changed == nil || c.applied >= revision },
		"publish challenge: the gateway of this host does not use it")
	asking.Wait()
	return err
}

// others returns the names of the other nodes that are alive, by their ids.
func (c *Certificates) others() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]string{}
	if c.snapshot == nil {
		return all
	}
	for _, n := range record.Each[record.Node](c.snapshot, record.Nodes) {
		if _, alive := c.snapshot.Get(record.Key(record.Alives, n.ID)); alive && n.ID != c.self.Node {
			all[n.ID] = n.Name
		}
	}
	return all
}

// ask asks another node until it has answered, is not alive any more, or ctx ends.
func (c *Certificates) ask(ctx context.Context, id string, revision int64) error {
	for {
		var a answer
		err := c.cfg.Peers.Peer(ctx, id, Question, question{revision}, &a)
		if err == nil || api.CodeOf(err) == api.NotFound { // its version has no gateway with challenges of others
			return err
		}
		kv.Wait(ctx, answerPause)
		if _, alive := c.others()[id]; ctx.Err() != nil || !alive {
			return err
		}
	}
}

// CleanUp removes a challenge.
func (c *Certificates) CleanUp(ctx context.Context, lock string, ch gateway.Challenge) error {
	if _, err := c.write(context.WithoutCancel(ctx), lock, kv.Change{Key: challengeKey(lock, ch)}); err != nil {
		return fmt.Errorf("remove challenge: %w", err)
	}
	return nil
}

// Challenges returns the challenges of all nodes. Update reports those that cannot be opened.
func (c *Certificates) Challenges() (all []gateway.Challenge) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshot == nil {
		return nil
	}
	for e := range c.snapshot.Under(record.Challenges) {
		text, err := c.open(e)
		var ch gateway.Challenge
		if err == nil && json.Unmarshal(text, &ch) == nil {
			all = append(all, ch)
		}
	}
	return all
}
