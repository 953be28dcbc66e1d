"""Every function of torch is called with keyword arguments, under the names in its documentation."""

import io

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(52)
x = torch.randn(96, 6)
train, held_out = random_split(dataset=TensorDataset(x, x[:, :3].argmax(1)), lengths=[64, 32])
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 3))
nn.init.normal_(tensor=net[0].weight, mean=0.0, std=0.3)
average = AveragedModel(model=net)
optimizer = torch.optim.SGD(params=net.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer=optimizer, step_size=4)
scaler = torch.cuda.amp.GradScaler(init_scale=8.0, enabled=False)
loader = DataLoader(dataset=train, batch_size=16, shuffle=True)
for epoch in range(3):
    net.train(mode=True)
    for rows, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        noise = Normal(loc=torch.zeros(3), scale=0.01).sample(sample_shape=(len(rows),))
        loss = F.cross_entropy(input=net(input=rows) + noise, target=labels)
        torch.autograd.backward(tensors=scaler.scale(outputs=loss))
        scaler.unscale_(optimizer=optimizer)
        nn.utils.clip_grad_norm_(parameters=net.parameters(), max_norm=1.0)
        nn.utils.clip_grad_value_(net.parameters(), clip_value=0.5)
        scaler.step(optimizer=optimizer)
        scaler.update()
        average.update_parameters(model=net)
    schedule.step()
    file = io.BytesIO()
    torch.save(obj={"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, f=file)
    file.seek(0)
    state = torch.load(f=file)
    net.load_state_dict(state_dict=state["model"])
    optimizer.load_state_dict(state_dict=state["optimizer"])
    net.eval()
    with torch.no_grad():
        for rows, labels in DataLoader(dataset=held_out, batch_size=32):
            print(epoch, F.cross_entropy(input=net(input=rows), target=labels).item())
update_bn(loader=loader, model=average)
print("sum", repr(sum(p.double().sum().item() for p in average.parameters())))
