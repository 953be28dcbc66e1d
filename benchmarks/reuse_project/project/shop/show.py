from shop.price import price

if __name__ == '__main__':
    print(price(3))
