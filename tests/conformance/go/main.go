// Messages NAME_SERVER: a producer and consumers with the Go client, one command per line of standard input. A line
// "done …" ends the answer to each. ACCESS_KEY and SECRET_KEY in the environment make it sign its requests.
//
//	send TOPIC COUNT · subscribe GROUP TOPIC · await GROUP COUNT
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	nameServer  = []string{os.Args[1]}
	credentials = primitive.Credentials{AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET_KEY")}
	mutex       sync.Mutex
	received    = map[string]map[string]bool{}
	sender      rocketmq.Producer
)

func main() {
	rlog.SetLogLevel("fatal")
	fmt.Println("done")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := execute(strings.Fields(lines.Text()))
		if err != nil {
			answer = "failed " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println("done " + answer)
	}
}

func execute(words []string) (string, error) {
	switch words[0] {
	case "send":
		count, _ := strconv.Atoi(words[2])
		return send(words[1], count)
	case "subscribe":
		return "subscribed", subscribe(words[1], words[2])
	case "await":
		count, _ := strconv.Atoi(words[2])
		return await(words[1], count), nil
	}
	return "unknown " + words[0], nil
}

func send(topic string, count int) (string, error) {
	if sender == nil {
		made, err := rocketmq.NewProducer(
			producer.WithNameServer(nameServer), producer.WithCredentials(credentials), producer.WithRetry(0),
			producer.WithSendMsgTimeout(20*time.Second))
		if err == nil {
			err = made.Start()
		}
		if err != nil {
			return "", err
		}
		sender = made
	}
	for number := 0; number < count; number++ {
		message := primitive.NewMessage(topic, []byte(topic+"/"+strconv.Itoa(number)))
		if _, err := sender.SendSync(context.Background(), message); err != nil {
			return "", err
		}
	}
	return "sent " + strconv.Itoa(count), nil
}

func subscribe(group, topic string) error {
	bodies := map[string]bool{}
	received[group] = bodies
	pusher, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(group), consumer.WithNameServer(nameServer), consumer.WithCredentials(credentials),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return err
	}
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mutex.Lock()
		defer mutex.Unlock()
		for _, message := range messages {
			bodies[string(message.Body)] = true
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := pusher.Subscribe(topic, consumer.MessageSelector{}, handle); err != nil {
		return err
	}
	return pusher.Start()
}

func await(group string, count int) string {
	got := 0
	for end := time.Now().Add(time.Minute); got < count && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		mutex.Lock()
		got = len(received[group])
		mutex.Unlock()
	}
	return "got " + strconv.Itoa(got) + " messages"
}
